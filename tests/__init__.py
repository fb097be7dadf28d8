"""Tests. Helpers that assert show what they compared, as tests do."""

import pytest

pytest.register_assert_rewrite("tests.invariants", "tests.crash.harness")
