# SPDX-License-Identifier: Apache-2.0
"""One way to verify, for tests, benchmark and examples alike; nothing here may import pybaracuda.

`definitions` say what every operator answers, in float64. `bounds` says how far a correct kernel may be from that.
`memory` holds what operators read and write: on the host and on a GPU, poisoned and between canaries. `judge` compares.
"""
