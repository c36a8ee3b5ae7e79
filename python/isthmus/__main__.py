# SPDX-License-Identifier: Apache-2.0
from isthmus._program import main

main()
