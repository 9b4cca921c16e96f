//go:build gpu

package cuda

import (
	"fmt"

	"gorgonia.org/cu"

	"github.com/tidemark-lab/tidemark/device"
)

// kernelKey names one kernel of one compilation.
type kernelKey struct {
	file, name string
	elem       device.DType // what activations are stored in; Uint8 where defines says all
	head       int          // head size and tile, for attention
	options    string       // definitions of what else attention does
}

// typeNames are the kernels' names of element types.
var typeNames = map[device.DType]string{device.Float32: "float", device.Float64: "double", device.BFloat16: "bf16"}

// realOf is the type of arithmetic for a type of elements.
func realOf(elem device.DType) (device.DType, error) {
	switch elem {
	case device.Float32, device.BFloat16:
		return device.Float32, nil
	case device.Float64:
		return device.Float64, nil
	}
	return 0, fmt.Errorf("no kernels for elements of type %v", elem)
}

// kernel finds a kernel, compiling its file if this is the first use.
func (d *Device) kernel(file, name string, elem device.DType) (*function, error) {
	return d.kernelWith(kernelKey{file: file, name: name, elem: elem}, "")
}

func (d *Device) kernelWith(key kernelKey, defines string) (*function, error) {
	if f := d.functions[key]; f != nil {
		return f, nil
	}
	real, err := realOf(key.elem)
	if err != nil {
		return nil, fmt.Errorf("kernel %s: %w", key.name, err)
	}
	s := source{file: key.file, defines: "-DREAL=" + typeNames[real] + " -DELEM=" + typeNames[key.elem]}
	if defines != "" {
		s.defines += " " + defines
	}
	m, err := d.module(s)
	if err != nil {
		return nil, err
	}
	f := &function{double: real == device.Float64, name: key.name}
	err = d.do(func() (err error) {
		f.f, err = m.Function(key.name)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("kernel %s of %s.cu: %w", key.name, key.file, err)
	}
	d.functions[key] = f
	return f, nil
}

// module loads a kernel file.
func (d *Device) module(s source) (cu.Module, error) {
	if m, ok := d.modules[s]; ok {
		return m, nil
	}
	code, err := s.cached(d.cache, d.architecture, d.nvrtc)
	if err != nil {
		return cu.Module{}, err
	}
	var m cu.Module
	err = d.do(func() (err error) {
		m, err = cu.LoadData(string(code))
		return err
	})
	if err != nil {
		return cu.Module{}, fmt.Errorf("loading the kernels of %s.cu: %w", s.file, err)
	}
	d.modules[s] = m
	return m, nil
}
