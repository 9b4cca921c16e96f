//go:build !openblas

package gemm

func multiply32(p *product[float32]) { native32.multiply(p) }
func multiply64(p *product[float64]) { native64.multiply(p) }
func name() string                   { return native32.name }
