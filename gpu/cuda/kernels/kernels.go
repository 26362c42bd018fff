// Package kernels has the CUDA code of the operations: one .cu a family, and the
// PTX made of it, which is committed and embedded, so that users need the driver
// alone. Go code here is data: gpu/cuda loads the PTX and launches its functions.
//
// After a change of a .cu or .cuh run `go generate` here (see generate); a test
// compares the hash of the sources that each PTX carries.
package kernels

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strings"
)

//go:generate go run ./generate

//go:embed *.ptx
var ptx embed.FS

// Module is one file of PTX.
type Module struct {
	Name string // "norm.ptx", for errors
	PTX  string
	// Needs is the lowest compute capability it is for, times 10: cards below
	// cannot take it.
	Needs int
}

// Modules returns all PTX, by name. Functions have names of their own over all of them.
func Modules() []Module {
	names, err := fs.Glob(ptx, "*.ptx")
	if err != nil {
		panic(err) // the pattern is malformed
	}
	modules := make([]Module, len(names))
	for i, name := range names {
		text, err := ptx.ReadFile(name)
		if err != nil {
			panic(err) // embedded, as the glob says
		}
		modules[i] = Module{Name: name, PTX: string(text), Needs: Needs}
	}
	return modules
}

// Needs is the compute capability that all kernels are compiled for, times 10.
const Needs = 80

var optionLine = regexp.MustCompile(`(?m)^// nvrtc: (.+)$`)

// Options returns the compiler's options for the text of a .cu: those of all
// kernels, and what a line "// nvrtc: ..." adds.
func Options(cu string) []string {
	options := []string{fmt.Sprintf("--gpu-architecture=compute_%d", Needs), "--std=c++17"}
	for _, m := range optionLine.FindAllStringSubmatch(cu, -1) {
		options = append(options, strings.Fields(m[1])...)
	}
	return options
}

// Headers returns the .cuh files in a folder, by name.
func Headers(folder fs.FS) (map[string]string, error) {
	names, err := fs.Glob(folder, "*.cuh")
	if err != nil {
		return nil, err
	}
	headers := map[string]string{}
	for _, name := range names {
		text, err := fs.ReadFile(folder, name)
		if err != nil {
			return nil, err
		}
		headers[name] = string(text)
	}
	return headers, nil
}

var includeLine = regexp.MustCompile(`(?m)^#include "(.+)"$`)

// SourceHash returns the hash of all that a .cu is compiled from: its text and
// options, and the headers it includes, directly or not.
func SourceHash(folder fs.FS, cu string) (string, error) {
	h := sha256.New()
	seen := map[string]bool{}
	var add func(name string) error
	add = func(name string) error {
		if seen[name] {
			return nil
		}
		seen[name] = true
		text, err := fs.ReadFile(folder, name)
		if err != nil {
			return err
		}
		fmt.Fprintf(h, "%s %d\n", name, len(text))
		h.Write(text)
		for _, m := range includeLine.FindAllStringSubmatch(string(text), -1) {
			if err := add(path.Clean(m[1])); err != nil {
				return err
			}
		}
		return nil
	}
	if err := add(cu); err != nil {
		return "", err
	}
	text, err := fs.ReadFile(folder, cu)
	if err != nil {
		return "", err
	}
	fmt.Fprintln(h, Options(string(text)))
	return hex.EncodeToString(h.Sum(nil)), nil
}

// hashPrefix begins the first line of a PTX file; the hash of its sources follows.
const hashPrefix = "// sources sha256 "

// Stamp returns PTX with the hash of its sources on a line before it.
func Stamp(ptx, hash string) string { return hashPrefix + hash + "\n" + ptx }

// Stamped returns the hash that Stamp wrote, "" where there is none.
func Stamped(ptx string) string {
	line, _, _ := strings.Cut(ptx, "\n")
	hash, ok := strings.CutPrefix(line, hashPrefix)
	if !ok {
		return ""
	}
	return hash
}
