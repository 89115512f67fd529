# SPDX-License-Identifier: Apache-2.0
"""Small programs that train for ten steps, and a command that runs each twice to see whether its weights repeat."""
