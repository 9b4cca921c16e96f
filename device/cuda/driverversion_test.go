package cuda

import "testing"

func TestModuleVersion(t *testing.T) {
	for text, want := range map[string]string{
		"NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.04  Tue Apr  7 12:34:56 UTC 2026\nGCC version:  gcc version 13.3.0 (Ubuntu 13.3.0)\n":                 "580.159.04",
		"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build  (dvs-builder@U16-I3-A16-2-2)  Thu Jan\nGCC version:  gcc version 11.4.0\n": "570.86.15",
		"NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  550.54  Release Build\n":                                                                            "550.54",
		"GCC version:  gcc version 13.3.0\n": "",
		"":                                   "",
	} {
		if got := parseModuleVersion(text); got != want {
			t.Errorf("%q gives %q, want %q", text, got, want)
		}
	}
}
