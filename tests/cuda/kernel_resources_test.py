#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The rules of kernel_resources.py, on reports of kernels that break them."""
import unittest

import kernel_resources as rules

UNNAMED = "_GLOBAL__N__1c0ffee1_7_norm_cu_f4f4f4f4_2222"  # nvcc's name of an unnamed namespace
KERNEL = f"_ZN7isthmus4cuda{len(UNNAMED)}{UNNAMED}15backward_kernelIffLi4ELi4EEEvNS1_8BackwardIT_T0_EE"


def report(registers=40, stores=0, loads=0, shared=0, symbol=KERNEL):
    smem = f" {shared} bytes smem," if shared else ""
    return (f"ptxas info    : Compiling entry function '{symbol}' for 'sm_90'\n"
            f"ptxas info    : Function properties for {symbol}\n"
            f"    0 bytes stack frame, {stores} bytes spill stores, {loads} bytes spill loads\n"
            f"ptxas info    : Used {registers} registers, used 1 barriers,{smem} 480 bytes cmem[0]\n")


def faults(text, bounded=(), allowed=None, dynamic=32 << 10):
    kernels = rules.kernels_of("ptxas info    : 24 bytes gmem\n" + text, "a.cu")
    return rules.check(kernels, {"a.cu": set(bounded)}, dynamic, allowed or {})


class Reports(unittest.TestCase):
    def test_names(self):
        self.assertEqual(rules.plain_name(KERNEL), "backward_kernel")
        self.assertEqual(rules.plain_name("_Z9fg_kernelPf"), "fg_kernel")
        self.assertEqual(rules.plain_name("plain"), "plain")

    def test_numbers(self):
        (first, second) = rules.kernels_of(report(127, 8, 12, 272) + report(), "a.cu")
        self.assertEqual(first[:2] + first[3:], ("a.cu", "backward_kernel", "sm_90", 127, 12, 272))
        self.assertEqual(second[4:], (40, 0, 0))

    def test_another_form_is_an_error(self):
        with self.assertRaisesRegex(ValueError, "a.cu: the report of a kernel has another form"):
            rules.kernels_of(report().replace("registers", "places"), "a.cu")

    def test_launch_bounds(self):
        text = """
__global__ void plain_kernel(int n) {
template <int k> __global__ void __launch_bounds__(kMost, 1) one_kernel(int n) {
__global__ void __launch_bounds__(Cut<k>::threads(2) * kWarp)
    two_kernel(int n) {"""
        self.assertEqual(rules.bounded_kernels(text), {"one_kernel", "two_kernel"})


class Faults(unittest.TestCase):
    def test_spills(self):
        self.assertEqual(faults(report(stores=100, loads=100)), [])
        for spilled in ({"stores": 101}, {"loads": 101}):
            (line,) = faults(report(**spilled))
            self.assertIn("a.cu: backward_kernel for sm_90: 101 bytes of registers are spilled", line)

    def test_registers(self):
        self.assertEqual(faults(report(64)), [])
        (line,) = faults(report(65))
        self.assertIn("65 registers a thread and no __launch_bounds__", line)
        self.assertEqual(faults(report(255), bounded=["backward_kernel"]), [])

    def test_shared_memory(self):
        self.assertEqual(faults(report(shared=16 << 10)), [])
        (line,) = faults(report(shared=(16 << 10) + 1))
        self.assertIn("16385 bytes of static shared memory", line)
        self.assertEqual(len(faults(report(shared=1), dynamic=48 << 10)), 1)

    def test_exceptions(self):
        allowed = {("a.cu", "backward_kernel", "spills"): "it is rare"}
        self.assertEqual(faults(report(stores=101), allowed=allowed), [])
        self.assertEqual(len(faults(report(65, stores=101), allowed=allowed)), 1)
        (line,) = faults(report(), allowed=allowed)
        self.assertIn("(it is rare), and nothing needs it", line)


if __name__ == "__main__":
    unittest.main()
