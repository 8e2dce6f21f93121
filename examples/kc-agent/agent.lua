agent {
  model = "demo/shopper", -- a script; models.yml has real ones

  -- The tools of a computer: kc__fs, kc__ref, kc__exec and so on. The token comes from the environment.
  mcp = {
    kc = { url = "http://127.0.0.1:7333/mcp", headers = { Authorization = "Bearer $KC_TOKEN" } },
  },
}
