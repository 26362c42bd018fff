//go:build cuda

package cublaslt

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"

	"longship/gpu/cuda/shim"
)

// ErrNotFound says that no cublasLt was found; the text says where it was looked for.
var ErrNotFound = errors.New("cublasLt was not found")

// names are the library's names, the newest major version first.
func names() []string {
	if runtime.GOOS == "windows" {
		return []string{"cublasLt64_13.dll", "cublasLt64_12.dll", "cublasLt64_11.dll"}
	}
	return []string{"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so.11"}
}

// place is one place to look in: a folder, or the loader's own path.
type place struct {
	folder string
	why    string // what led there, for the text of errors
}

// places are where cublasLt may lie, in the order they are looked in.
func places() []place {
	var out []place
	for _, dir := range filepath.SplitList(os.Getenv("LONGSHIP_CUDA_LIBS")) {
		out = append(out, place{dir, "LONGSHIP_CUDA_LIBS"})
	}
	out = append(out, place{"", "the loader's path"})
	if root := os.Getenv("CUDA_PATH"); root != "" {
		for _, dir := range []string{"lib64", "bin", filepath.Join("bin", "x64")} {
			out = append(out, place{filepath.Join(root, dir), "CUDA_PATH"})
		}
	}
	if runtime.GOOS != "windows" {
		out = append(out, place{"/usr/local/cuda/lib64", "the toolkit's folder"})
	}
	for _, site := range sitePackages() {
		for _, dir := range []string{
			filepath.Join("nvidia", "cu13", "lib"), filepath.Join("nvidia", "cu13", "bin", "x86_64"), filepath.Join("nvidia", "cublas", "lib"),
			filepath.Join("nvidia", "cublas", "bin"), filepath.Join("torch", "lib"),
		} {
			out = append(out, place{filepath.Join(site, dir), "Python packages"})
		}
	}
	return out
}

// sitePackages returns the package folders of Python installations, those that
// ComfyUI and ai-toolkit bring or use among them: of an active environment, of
// the working folder's and the home folder's, and the system's.
func sitePackages() []string {
	home, _ := os.UserHomeDir()
	var roots []string
	for _, env := range []string{"VIRTUAL_ENV", "CONDA_PREFIX"} {
		if dir := os.Getenv(env); dir != "" {
			roots = append(roots, dir)
		}
	}
	for _, base := range []string{".", home} {
		for _, app := range []string{"", "ComfyUI", "ai-toolkit", "ComfyUI_windows_portable"} {
			for _, env := range []string{"venv", ".venv", "env", "python_embeded"} {
				roots = append(roots, filepath.Join(base, app, env))
			}
		}
	}
	roots = append(roots, filepath.Join(home, ".local"), "/usr/local", "/usr", "/opt/conda", "/opt/venv")
	if runtime.GOOS == "windows" {
		roots = append(roots, globs(filepath.Join(os.Getenv("LOCALAPPDATA"), "Programs", "Python", "Python3*"))...)
	}
	var found []string
	for _, root := range roots {
		for _, pattern := range []string{"lib/python3*/site-packages", "lib/python3*/dist-packages", "Lib/site-packages"} {
			for _, dir := range globs(filepath.Join(root, filepath.FromSlash(pattern))) {
				if !slices.Contains(found, dir) {
					found = append(found, dir)
				}
			}
		}
	}
	return found
}

func globs(pattern string) []string {
	dirs, _ := filepath.Glob(pattern) // its one error is a bad pattern
	slices.Reverse(dirs)              // a newer Python before an older one
	return dirs
}

// Load finds cublasLt and loads it, once: the newest in the first place that
// has one whose CUDA version is not above the driver's, whose version (12040
// for 12.4) the first caller names.
func Load(driver int) (*Library, error) {
	once.Do(func() { loaded, failure = load(places(), driver) })
	return loaded, failure
}

var (
	once    sync.Once
	loaded  *Library
	failure error
)

func load(where []place, driver int) (*Library, error) {
	var looked, why []string
	for _, p := range where {
		looked = append(looked, p.String())
		for _, name := range names() {
			if major(name) > driver/1000 {
				why = append(why, fmt.Sprintf("%s needs a driver for CUDA %d, this one is for %d.%d", name, major(name), driver/1000, driver%1000/10))
				continue
			}
			at := filepath.Join(p.folder, name)
			if p.folder != "" {
				if _, err := os.Stat(at); errors.Is(err, fs.ErrNotExist) {
					continue
				}
			}
			lib, err := shim.Open(at)
			if err != nil {
				if p.folder != "" {
					why = append(why, err.Error())
				}
				continue
			}
			l, err := bind(lib)
			if err != nil {
				why = append(why, err.Error())
				continue
			}
			return l, nil
		}
	}
	text := "looked for " + strings.Join(names(), ", ") + " in " + strings.Join(slices.Compact(looked), ", ")
	if len(why) > 0 {
		slices.Sort(why)
		text += "; " + strings.Join(slices.Compact(why), "; ")
	}
	return nil, fmt.Errorf("%w: %s. Install it with `pip install nvidia-cublas-cu12`, or name its folder in LONGSHIP_CUDA_LIBS", ErrNotFound, text)
}

func (p place) String() string {
	if p.folder == "" {
		return p.why
	}
	return p.folder + " (" + p.why + ")"
}

// major is the CUDA version in a library's name.
func major(name string) int {
	for v := 13; v > 11; v-- {
		if strings.Contains(name, fmt.Sprint(v)) {
			return v
		}
	}
	return 11
}
