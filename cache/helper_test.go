package cache_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"longship/cache"
)

// childEnv makes the test binary a second process: its value is what to do,
// with the folder as argument.
const childEnv = "LONGSHIP_CACHE_CHILD"

func TestMain(m *testing.M) {
	if job := os.Getenv(childEnv); job != "" {
		os.Exit(child(job, os.Args[len(os.Args)-1]))
	}
	var leaks []goleak.Option
	if long() { // Badger leaves these behind where it fails to open a folder
		leaks = append(leaks,
			goleak.IgnoreTopFunction("github.com/dgraph-io/badger/v4.(*DB).monitorCache"),
			goleak.IgnoreTopFunction("github.com/dgraph-io/badger/v4.(*DB).updateSize"),
			goleak.IgnoreTopFunction("github.com/dgraph-io/ristretto/v2/z.(*AllocatorPool).freeupAllocators"))
	}
	goleak.VerifyTestMain(m, leaks...)
}

// child holds a cache, or puts tensor after tensor and says so, until it is killed.
func child(job, dir string) int {
	ctx := context.Background()
	s, err := cache.Open(ctx, dir, cache.Options{Run: "the other run"})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("open")
	if job == "hold" {
		time.Sleep(time.Minute)
	}
	for i := 0; ; i++ {
		if err := s.Put(ctx, ref(i, crashSize), pattern(i)); err != nil {
			fmt.Println(err)
			return 1
		}
		fmt.Println(i)
	}
}

const crashSize = 40 << 10

// pattern is the content of tensor i that a child puts.
func pattern(i int) []byte { return bytes.Repeat([]byte{byte(i), byte(i >> 8), 3, 5}, crashSize/4) }

// start starts a second process and waits until it has opened the cache.
func start(t testing.TB, job, dir string) (cmd *exec.Cmd, out *bufio.Scanner) {
	t.Helper()
	cmd = exec.Command(os.Args[0], dir)
	cmd.Env = append(os.Environ(), childEnv+"="+job)
	pipe, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	out = bufio.NewScanner(pipe)
	require.True(t, out.Scan())
	require.Equal(t, "open", out.Text())
	return cmd, out
}

// open opens a cache for a test and closes it at its end.
func open(t testing.TB, dir string) *cache.Store {
	t.Helper()
	return openWith(t, dir, cache.Options{Run: "test"})
}

func openWith(t testing.TB, dir string, opt cache.Options) *cache.Store {
	t.Helper()
	if opt.Log == nil {
		opt.Log = hclog.New(&hclog.LoggerOptions{Output: testWriter{t}, Level: hclog.Info})
	}
	s, err := cache.Open(context.Background(), dir, opt)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

type testWriter struct{ t testing.TB }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Log(string(bytes.TrimSpace(p)))
	return len(p), nil
}

// blob returns n random bytes.
func blob(t testing.TB, n int) []byte {
	t.Helper()
	p := make([]byte, n)
	_, err := rand.Read(p)
	require.NoError(t, err)
	return p
}

// ref names tensor i of a test.
func ref(i, n int) cache.Ref {
	return cache.Ref{Key: cache.NewKey("test").Int(i).Sum(), DType: "f32", Shape: []int{n / 4}, Kind: "latent"}
}

// long says whether tests may take minutes.
func long() bool { return os.Getenv("LONGSHIP_LONG") == "1" }
