"""F3: one file per mnemonic. Each executes one action inside a child process; live objects never leave it."""
