// Package bench measures a training step of tidemark beside the same step
// written with Gorgonia's stock operations on its TapeMachine. It holds nothing
// but tests and benchmarks; BENCHMARKS.md says how to run them and what they
// found.
package bench
