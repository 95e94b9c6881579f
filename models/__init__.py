"""The zoo: builders that return seeded modules, one file per family. Their configs are in `conf/model/`."""
