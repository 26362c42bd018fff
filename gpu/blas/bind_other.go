//go:build !linux && !darwin && !windows

package blas

import (
	"errors"
	"fmt"
)

func loadOpenBLAS(name string) (*openBLAS, error) {
	return nil, fmt.Errorf("%s: %w", name, errors.ErrUnsupported)
}
