"""What collections share: a model made small by rule, inputs that eager takes, the configuration written of both."""
