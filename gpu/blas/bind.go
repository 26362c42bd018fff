//go:build linux || darwin || windows

package blas

import (
	"fmt"

	"github.com/ebitengine/purego"
)

func loadOpenBLAS(name string) (*openBLAS, error) {
	h, err := openLibrary(name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	var (
		l          openBLAS
		setThreads func(int32)
		config     func() string
	)
	purego.RegisterLibFunc(&l.sgemm, h, "cblas_sgemm")
	purego.RegisterLibFunc(&setThreads, h, "openblas_set_num_threads")
	purego.RegisterLibFunc(&config, h, "openblas_get_config")
	setThreads(1)
	l.version = config()
	return &l, nil
}
