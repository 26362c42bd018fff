package runstate

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"longship/cache/folderlock"
	"longship/pipeline"
)

// start starts a second process on the run and waits until it has the lock.
func start(t *testing.T, job, output string) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	cmd := exec.Command(os.Args[0], output)
	cmd.Env = append(os.Environ(), childEnv+"="+job)
	pipe, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	out := bufio.NewScanner(pipe)
	require.True(t, out.Scan())
	require.Equal(t, "locked", out.Text())
	return cmd, out
}

// Killed at any moment, a save included, a run leaves a whole pair that is at
// least as new as the last one it reported.
func TestKilledWhileSaving(t *testing.T) {
	output := t.TempDir()
	f := In(output, "cat")
	last := 0
	for round := range 8 {
		cmd, out := start(t, strconv.Itoa(last+1), output)
		time.AfterFunc(time.Duration(5+rand.IntN(80))*time.Millisecond, func() { cmd.Process.Kill() })
		for out.Scan() {
			step, err := strconv.Atoi(out.Text())
			require.NoError(t, err, out.Text())
			last = step
		}
		cmd.Wait()
		c, ignored := newest(t, f)
		if last == 0 && c == nil {
			continue
		}
		require.NotNil(t, c, "round %d: %v", round, ignored)
		require.GreaterOrEqual(t, c.Step, last)
		requireState(t, c)
		last = c.Step
	}
	require.Positive(t, last)
	save(t, f, bf16(3), last+1)
	left, err := f.partials([]series{f.series("")})
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestLock(t *testing.T) {
	output := t.TempDir()
	other, _ := start(t, "hold", output)
	_, err := In(output, "cat").Lock(t.Context(), nil)
	var busy *folderlock.BusyError
	require.ErrorAs(t, err, &busy)
	require.Equal(t, other.Process.Pid, busy.Holder.PID)
	require.ErrorContains(t, err, fmt.Sprintf("in use by process %d (run %q", other.Process.Pid, "cat"))

	lock, err := In(output, "dog").Lock(t.Context(), nil)
	require.NoError(t, err, "another run is no hindrance")
	require.NoError(t, lock.Release())

	require.NoError(t, other.Process.Kill())
	other.Wait()
	lock, err = In(output, "cat").Lock(t.Context(), nil)
	require.NoError(t, err, "a killed run holds nothing")
	_, err = In(output, "cat").Lock(t.Context(), nil)
	require.ErrorIs(t, err, folderlock.ErrHeldHere)
	require.NoError(t, lock.Release())
}

func TestShared(t *testing.T) {
	env := &pipeline.Env{Name: "cat", Output: t.TempDir()}
	run, err := Shared(t.Context(), env)
	require.NoError(t, err)
	require.Nil(t, run.Checkpoint)
	require.Zero(t, run.MicroBatches())
	again, err := Shared(t.Context(), env)
	require.NoError(t, err)
	require.Same(t, run, again)
	st := stateAt(7)
	st.Counters["micro_batches"] = 14
	_, err = run.Save(t.Context(), bf16(0), st)
	require.NoError(t, err)

	other := &pipeline.Env{Name: "cat", Output: env.Output}
	_, err = Shared(t.Context(), other)
	require.ErrorIs(t, err, folderlock.ErrHeldHere)
	require.NoError(t, env.Close())
	run, err = Shared(t.Context(), other)
	require.NoError(t, err)
	require.Equal(t, 7, run.Checkpoint.Step)
	require.Equal(t, 14, run.MicroBatches())
	aside, err := run.Restart()
	require.NoError(t, err)
	require.DirExists(t, aside)
	require.Nil(t, run.Checkpoint)
	require.NoError(t, other.Close())
}

func TestRestart(t *testing.T) {
	f := In(t.TempDir(), "cat")
	lock, err := f.Lock(t.Context(), nil)
	require.NoError(t, err)
	defer lock.Release()
	aside, err := f.Restart()
	require.NoError(t, err)
	require.Empty(t, aside, "nothing to move")
	for n := 1; n <= 2; n++ {
		save(t, f, bf16(0), n)
		require.NoError(t, os.WriteFile(filepath.Join(f.Dir, "loss.png"), nil, 0o644))
		aside, err := f.Restart()
		require.NoError(t, err)
		require.Equal(t, fmt.Sprintf("%s.old-%d", f.Dir, n), aside)
		c, ignored := newest(t, f)
		require.Nil(t, c)
		require.Empty(t, ignored)
		c, _ = newest(t, Folder{Dir: aside, Name: "cat"})
		require.Equal(t, n, c.Step, "the old output is whole")
		require.FileExists(t, filepath.Join(aside, "loss.png"))
	}
}
