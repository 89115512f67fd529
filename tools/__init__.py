# SPDX-License-Identifier: Apache-2.0
"""Commands that set up, generate, test and package the project; nothing here is installed."""
