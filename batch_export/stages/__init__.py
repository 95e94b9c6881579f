"""One file per step. Each executes one action inside a child process; live objects never leave it."""
