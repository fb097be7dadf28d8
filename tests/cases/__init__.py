"""Failures that other systems of this kind had in public, each as a scenario that must go well here.

Named for what is protected; the number in a test's docstring is that of the case. Those of one part of the code
stand with its other tests; here are the ones that need the whole runtime.
"""
