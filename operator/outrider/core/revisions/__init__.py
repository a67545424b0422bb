"""Is a candidate better than the stable revision, or not worse? A sequential test on what engines delivered.

`evidence` has what is known of each engine process, `matching` compares candidate and stable at like load and the same
time, `intervals` turns that into a relative gain with its error, `health` has the faults that need no statistics of
speed, and `analysis` gives the verdict. Boots of one engine differ for good (`intervals`), so a boot is one draw,
however long it runs.
"""
