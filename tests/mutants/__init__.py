"""Deliberate breakages of the code, and the tests that have to notice them.

A test that cannot fail protects nothing. Each mutant breaks one promise or one table in one place; the tests named
beside it must go red. ``python -m tests.mutants`` proves it on copies of the tree.
"""
