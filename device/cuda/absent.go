//go:build !gpu

package cuda

import (
	"fmt"

	"github.com/tidemark-lab/tidemark/device"
)

// Device is never there in a program built without the tag gpu.
type Device struct{ device.Device }

// Open fails with device.ErrAbsent: the program was built without the tag gpu.
func Open(index int, _ Options) (*Device, error) {
	return nil, fmt.Errorf("cuda:%d: this program was built without GPU support; build it with -tags gpu (make gpu): %w",
		index, device.ErrAbsent)
}

// Cards fails as Open does.
func Cards() ([]Card, error) {
	return nil, fmt.Errorf("this program was built without GPU support; build it with -tags gpu (make gpu): %w",
		device.ErrAbsent)
}

// Environment fails as Open does.
func (d *Device) Environment() (Environment, error) {
	_, err := Cards()
	return Environment{}, err
}
