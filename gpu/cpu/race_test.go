//go:build race

package cpu_test

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"longship/gpu"
	"longship/gpu/cpu"
)

const probe = "LONGSHIP_RACE_PROBE"

// The race detector reports a consumer that forgets to wait for its producer's
// event, and is silent where it waits. It misses about one occurrence in five,
// so the probe has thirty. It runs in a process of its own, since a report
// fails it.
func TestForgottenEventIsADataRace(t *testing.T) {
	if how := os.Getenv(probe); how != "" {
		for range 30 {
			produceAndConsume(t, how == "waits")
		}
		return
	}
	for _, how := range []string{"waits", "forgets"} {
		cmd := exec.Command(os.Args[0], "-test.run", "^TestForgottenEventIsADataRace$")
		cmd.Env = append(os.Environ(), probe+"="+how)
		out, err := cmd.CombinedOutput()
		if how == "waits" {
			require.NoError(t, err, "%s", out)
			continue
		}
		require.Error(t, err)
		require.Contains(t, string(out), "DATA RACE")
	}
}

func produceAndConsume(t *testing.T, wait bool) {
	d, err := cpu.New()
	require.NoError(t, err)
	src, err := d.Alloc(64)
	require.NoError(t, err)
	dst, err := d.Alloc(64)
	require.NoError(t, err)
	copies, err := d.NewStream("copies")
	require.NoError(t, err)
	compute, err := d.NewStream("compute")
	require.NoError(t, err)
	copies.Copy(gpu.Region{Buf: dst, Len: dst.Size()}, gpu.Region{Buf: src, Len: src.Size()})
	if wait {
		compute.Wait(copies.Record())
	}
	var sum byte
	compute.Launch(does(func() {
		for _, b := range dst.Host() {
			sum += b
		}
	}))
	require.NoError(t, compute.Close())
	require.NoError(t, copies.Close())
}
