package kernels_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"longship/gpu/cuda/kernels"
	"longship/gpu/ops"
)

// newest is the PTX version that drivers from R520 on compile.
var newest = [2]int{7, 8}

var (
	version = regexp.MustCompile(`(?m)^\.version (\d+)\.(\d+)$`)
	target  = regexp.MustCompile(`(?m)^\.target (sm_\d+)$`)
	entry   = regexp.MustCompile(`\.visible \.entry (\w+)\(`)
)

func TestPTXIsOfItsSources(t *testing.T) {
	folder := os.DirFS(".")
	cus, err := filepath.Glob("*.cu")
	require.NoError(t, err)
	modules := map[string]string{}
	for _, m := range kernels.Modules() {
		modules[m.Name] = m.PTX
	}
	require.Len(t, modules, len(cus))
	for _, cu := range cus {
		t.Run(cu, func(t *testing.T) {
			hash, err := kernels.SourceHash(folder, cu)
			require.NoError(t, err)
			ptx := modules[strings.TrimSuffix(cu, ".cu")+".ptx"]
			require.Equal(t, hash, kernels.Stamped(ptx), "the sources have changed: run go generate ./gpu/cuda/kernels")
		})
	}
}

func TestOldDriversTakePTX(t *testing.T) {
	for _, m := range kernels.Modules() {
		t.Run(m.Name, func(t *testing.T) {
			v := version.FindStringSubmatch(m.PTX)
			require.NotNil(t, v, "no .version")
			major, _ := strconv.Atoi(v[1])
			minor, _ := strconv.Atoi(v[2])
			require.False(t, major > newest[0] || major == newest[0] && minor > newest[1], "PTX %s.%s asks for a newer driver than R520", v[1], v[2])
			require.Equal(t, fmt.Sprintf("sm_%d", m.Needs), target.FindStringSubmatch(m.PTX)[1])
		})
	}
}

func TestNamesAreUnique(t *testing.T) {
	of := map[string]string{}
	for _, m := range kernels.Modules() {
		for _, e := range entry.FindAllStringSubmatch(m.PTX, -1) {
			require.Empty(t, of[e[1]], "kernel %s is in %s too", e[1], m.Name)
			of[e[1]] = m.Name
		}
	}
	require.NotEmpty(t, of)
}

// The hash notices a change of a header two includes away, and of the options.
func TestHashCoversAllSources(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	hash := func() string {
		h, err := kernels.SourceHash(os.DirFS(dir), "a.cu")
		require.NoError(t, err)
		return h
	}
	write("a.cu", "#include \"b.cuh\"\n")
	write("b.cuh", "#include \"c.cuh\"\n")
	write("c.cuh", "// one\n")
	seen := map[string]bool{hash(): true}
	for name, text := range map[string]string{"c.cuh": "// two\n", "a.cu": "// nvrtc: --fmad=false\n#include \"b.cuh\"\n"} {
		write(name, text)
		require.False(t, seen[hash()], "a change of %s goes unnoticed", name)
		seen[hash()] = true
	}
	_, err := kernels.SourceHash(os.DirFS(dir), "absent.cu")
	require.Error(t, err)
}

func TestAdamCodesAreThoseOfTheHost(t *testing.T) {
	header, err := os.ReadFile("adam8_codes.cuh")
	require.NoError(t, err)
	number := regexp.MustCompile(` (-?0x\S+)f,`)
	var got []float32
	for _, m := range number.FindAllStringSubmatch(string(header), -1) {
		v, err := strconv.ParseFloat(m[1], 32)
		require.NoError(t, err)
		got = append(got, float32(v))
	}
	require.Equal(t, append(ops.SignedCode().Value[:], ops.UnsignedCode().Value[:]...), got)
}

// maxShared is the shared memory that a block may have on every card from
// Ampere on (99 KB on the RTX 30, 40 and 50 series).
const maxShared = 99 << 10

// The driver's compiler puts nothing of any kernel into local memory, on no
// card; ptxas is NVIDIA's (PyPI: nvidia-cuda-nvcc-cu12).
func TestRegistersSuffice(t *testing.T) {
	ptxas, err := exec.LookPath("ptxas")
	if err != nil {
		t.Skip("ptxas is not installed")
	}
	if os.Getenv("LONGSHIP_LONG") == "" {
		t.Skip("a minute of compiling: set LONGSHIP_LONG=1")
	}
	spills := regexp.MustCompile(`(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads`)
	shared := regexp.MustCompile(`(\d+) bytes smem`)
	for _, m := range kernels.Modules() {
		for _, arch := range []string{"sm_80", "sm_86", "sm_89", "sm_90", "sm_120"} {
			t.Run(m.Name+"/"+arch, func(t *testing.T) {
				t.Parallel()
				out, err := exec.Command(ptxas, "-arch", arch, "-v", "-o", os.DevNull, m.Name).CombinedOutput()
				require.NoError(t, err, string(out))
				name := ""
				for line := range strings.Lines(string(out)) {
					if _, after, ok := strings.Cut(line, "Compiling entry function '"); ok {
						name, _, _ = strings.Cut(after, "'")
					}
					if s := spills.FindStringSubmatch(line); s != nil {
						require.Equal(t, []string{"0", "0", "0"}, s[1:], "%s: stack, spill stores, spill loads", name)
					}
					if s := shared.FindStringSubmatch(line); s != nil {
						bytes, _ := strconv.Atoi(s[1])
						require.LessOrEqual(t, bytes, maxShared, name)
					}
				}
				require.NotEmpty(t, name)
			})
		}
	}
}
