"""The hunter: generates whole programs, exports them, runs the files three ways and compares them with eager.

    python -m hunt --minutes 10 --seed 0        (in tests/; or `nox -s hunt -- --minutes 10 --seed 0`)

One seed is one program, always the same one. docs/verification.md says how to read what is found.
"""
