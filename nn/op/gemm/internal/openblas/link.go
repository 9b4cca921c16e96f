//go:build openblas

// Package openblas links the program with OpenBLAS, which gonum's netlib
// bindings call but leave to their users to name. It is a package of its own
// because one with cgo can hold no Go assembly.
package openblas

// #cgo LDFLAGS: -lopenblas
import "C"
