package runstate

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
)

// series is a row of adapter files: NAME_000000250.safetensors, …, and
// NAME.safetensors at the last step. A run's first is of the run's name; NAME
// of a further one is the run's, a hyphen and the series' own.
type series struct{ dir, name string }

func (f Folder) series(name string) series {
	if name == "" {
		return series{f.Dir, f.Name}
	}
	return series{f.Dir, f.Name + "-" + name}
}

// numbered is the path of a step's adapter.
func (s series) numbered(step int) string {
	return filepath.Join(s.dir, numbered(s.name, step, adapterExt))
}

// final is the path of the last step's adapter.
func (s series) final() string { return filepath.Join(s.dir, s.name+adapterExt) }

// stepOf returns the step in a file name of exactly this series, -1 for any other.
func (s series) stepOf(file string) int { return stepIn(s.name, file, adapterExt) }

// owns says whether a file name is one of this series.
func (s series) owns(file string) bool { return s.stepOf(file) >= 0 || file == s.name+adapterExt }

// numbered is the name of a step's file.
func numbered(name string, step int, ext string) string {
	return fmt.Sprintf("%s_%09d%s", name, step, ext)
}

// stepIn returns the step in a file name of exactly name, -1 for any other file:
// "cat_000000250.safetensors" is of "cat", "cat_v2_000000250.safetensors" is not.
func stepIn(name, file, ext string) int {
	digits, ok := strings.CutPrefix(file, name+"_")
	if !ok {
		return -1
	}
	digits, ok = strings.CutSuffix(digits, ext)
	if !ok || len(digits) < 9 {
		return -1
	}
	step, err := strconv.Atoi(digits)
	if err != nil || numbered(name, step, ext) != file {
		return -1
	}
	return step
}
