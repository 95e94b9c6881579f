"""The server that stays (`runner.keep_alive`): a forkserver that outlives the command that started it."""
