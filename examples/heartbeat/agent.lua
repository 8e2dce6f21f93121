agent {
  model = "demo/watchman", -- a script; models.yml has real ones

  -- A bound for what nobody watches: what one run, and what all runs of one day may use.
  budget = { run = { tokens = 50000 }, day = { tokens = 500000 } },
}
