//go:build !linux

package safetensors

import "os"

// dropBehind does nothing where the system takes no such hint.
func dropBehind(*os.File, int64, int64) {}
