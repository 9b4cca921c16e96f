package simd

import "golang.org/x/sys/cpu"

var accelerated = cpu.X86.HasAVX2 && cpu.X86.HasFMA
