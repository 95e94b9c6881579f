"""Collections of models: packages whose models have configurations without anybody writing YAML for them."""
