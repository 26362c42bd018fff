package ops_test

import (
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"longship/gpu"
	"longship/gpu/cpu"
	"longship/gpu/ops/opstest"
	"longship/gpu/tensor"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func device(t testing.TB) gpu.Device {
	dev, err := cpu.New()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, dev.Close()) })
	return dev
}

func TestParityAndGradients(t *testing.T) { opstest.RunAll(t, device(t), tensor.F32) }

func TestBitsOnAnyNumberOfCores(t *testing.T) { opstest.RunBits(t, device(t), tensor.F32) }

func BenchmarkOps(b *testing.B) { opstest.RunSpeed(b, device(b), tensor.F32) }

// Every op in this package has cases in the list and a line in the README.
func TestEveryOpIsListed(t *testing.T) {
	listed := opstest.Ops(t, device(t))
	files, err := os.ReadDir(".")
	require.NoError(t, err)
	name := regexp.MustCompile(`Name\(\) string\s*{ return "(\w+)" }`)
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	found := 0
	for _, f := range files {
		src, err := os.ReadFile(f.Name())
		if err != nil {
			continue
		}
		for _, m := range name.FindAllStringSubmatch(string(src), -1) {
			found++
			require.NotZero(t, listed[m[1]], "op %s (%s) has no case in opstest", m[1], f.Name())
			require.Contains(t, string(readme), "| `"+m[1]+"` |", "README.md has no line for op %s", m[1])
		}
	}
	require.Equal(t, len(listed), found)
}
