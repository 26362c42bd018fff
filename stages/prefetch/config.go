// Package prefetch is the stage that brings everything the next step needs to
// the device ahead of it: samples joined by bucket into batches, and the base
// weights behind a planned ring (gpu/memory).
package prefetch

import (
	"errors"
	"fmt"
	"strconv"

	"longship/gpu/memory"
	"longship/pipeline"
)

// Config is what the user writes.
type Config struct {
	Offload   string `yaml:"offload" jsonschema:"oneof_type=string;number" doc:"share of the block weights' bytes kept in host memory and streamed, 0 to 1; auto keeps as many as fit on the device"`
	Ring      int    `yaml:"ring" doc:"depth of the device ring in units"`
	BatchSize int    `yaml:"batch_size" doc:"samples in a micro-batch; all of one bucket"`
}

// Default returns the config with every default.
func Default() *Config { return &Config{Offload: "auto", Ring: memory.MinSlots, BatchSize: 1} }

// share returns the share to stream, auto true where the planner chooses.
func (c *Config) share() (share float64, auto bool, err error) {
	if c.Offload == "auto" {
		return 0, true, nil
	}
	share, err = strconv.ParseFloat(c.Offload, 64)
	if err != nil || !(share >= 0 && share <= 1) {
		return 0, false, fmt.Errorf("%q is neither auto nor a share from 0 to 1", c.Offload)
	}
	return share, false, nil
}

// Validate returns every fault.
func (c *Config) Validate() error {
	var errs []error
	if _, _, err := c.share(); err != nil {
		errs = append(errs, &pipeline.FieldError{Path: "offload", Msg: err.Error()})
	}
	if c.Ring < memory.MinSlots {
		errs = append(errs, &pipeline.FieldError{Path: "ring", Msg: fmt.Sprintf("%d units are too few; at least %d are needed, since a double block holds two", c.Ring, memory.MinSlots)})
	}
	if c.BatchSize < 1 {
		errs = append(errs, &pipeline.FieldError{Path: "batch_size", Msg: fmt.Sprintf("%d is below 1", c.BatchSize)})
	}
	return errors.Join(errs...)
}
