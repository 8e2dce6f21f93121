agent {
  model = "demo/bookkeeper", -- a script; models.yml has real ones
}
