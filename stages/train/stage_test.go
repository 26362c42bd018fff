package train

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"longship/internal/runstate"
	"longship/pipeline"
	"longship/pipeline/stagetest"
	"longship/stages/port"
)

func TestConformance(t *testing.T) { stagetest.Conformance(t, Factory(), "") }

// full uses what a resumed run must get right: accumulation, an average, 8-bit
// moments, a schedule, several shapes.
const full = `{steps: 6, lr: 1e-2, lr_scheduler: cosine, lr_warmup_steps: 2, gradient_accumulation: 2, optimizer: adamw8bit,
  ema_config: {use_ema: true, ema_decay: 0.8}, network: {rank: 64, alpha: 32}, validate_every: 2}`

func everyStep(pipeline.Moment) bool { return true }

func TestRunTrainsAndTells(t *testing.T) {
	c := trial{config: full, saveAt: everyStep}.run(t)
	require.NoError(t, c.Err)
	require.Len(t, c.steps, 6)
	for i, s := range c.steps {
		require.Equal(t, i+1, s.Step)
		require.False(t, s.Skipped)
		require.True(t, s.Loss > 0 && !math.IsInf(s.Loss, 0), "loss %v", s.Loss)
		require.Positive(t, s.GradNorm)
	}
	require.Zero(t, c.steps[0].LR)
	require.Equal(t, 1e-2, c.steps[2].LR)
	var at []int
	for _, v := range c.val {
		at = append(at, v.Step)
		require.Equal(t, c.val[0].Zero, v.Zero, "the noise is not fixed")
	}
	require.Equal(t, []int{0, 2, 4, 6}, at)
	require.Less(t, c.val[3].Loss, c.val[0].Loss)

	last := c.last()
	require.Equal(t, map[string]int64{"micro_batches": 12, "updates": 6, "skipped": 0, "nonfinite_row": 0}, last.counters)
	require.Equal(t, pipeline.Moment{Step: 6, Last: true}, c.at[5])
	events := map[string]int{}
	for _, e := range c.Events {
		events[e.Event]++
	}
	require.Equal(t, 6, events["step"])
	require.Equal(t, 4, events["validation"])
	require.Contains(t, c.Summary(), "loss of the last step")
}

// Whatever a run may be stopped at, and however it computes, the bits are the same.
func TestSameBits(t *testing.T) {
	for _, dtype := range []string{dtypeFloat32, dtypeBFloat16} {
		t.Run(dtype, func(t *testing.T) { testSameBits(t, strings.Replace(full, "rank: 64", "rank: 64, dtype: "+dtype, 1)) })
	}
}

func testSameBits(t *testing.T, full string) {
	straight := trial{config: full}.run(t)
	require.NoError(t, straight.Err)
	same := func(t *testing.T, c course) {
		t.Helper()
		require.NoError(t, c.Err)
		got, want := c.last(), straight.last()
		require.Equal(t, want.step, got.step)
		require.Equal(t, want.counters, got.counters)
		require.Len(t, got.tensors, len(want.tensors))
		for name, b := range want.tensors {
			if string(b) != string(got.tensors[name]) {
				t.Fatalf("%s differs", name)
			}
		}
	}
	with := func(more string) string { return strings.TrimSuffix(full, "}") + ", " + more + "}" }

	t.Run("again", func(t *testing.T) { same(t, trial{config: full}.run(t)) })
	for _, again := range []string{recomputeBlock, recomputeLinear, recomputeNone} {
		t.Run("recompute "+again, func(t *testing.T) {
			same(t, trial{config: with("recompute: " + again)}.run(t))
		})
	}
	t.Run("offloaded against resident", func(t *testing.T) {
		s := newSource(t)
		s.from = streamed(t, randomModel(s.model))
		same(t, trial{config: full, source: s}.run(t))
	})
	t.Run("one core", func(t *testing.T) {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
		same(t, trial{config: full}.run(t))
	})
	t.Run("without validation", func(t *testing.T) {
		s := newSource(t)
		s.val = 0
		same(t, trial{config: full, source: s}.run(t))
	})
	t.Run("resumed after every step", func(t *testing.T) {
		dir := t.TempDir()
		for step := 1; step <= 6; step++ {
			signals := make(chan os.Signal, 1)
			stop := func(s port.Step) {
				if s.Step == step && step < 6 {
					select {
					case signals <- os.Interrupt:
					default:
					}
				}
			}
			c := trial{dir: dir, config: full, signals: signals, onStep: stop,
				saveAt: func(at pipeline.Moment) bool { return at.Stop || at.Last }}.run(t)
			if step := c.last().step; step == 6 {
				same(t, c)
				return
			}
			require.ErrorIs(t, c.Err, pipeline.ErrInterrupted)
			require.True(t, c.at[0].Stop)
		}
		t.Fatal("the run never ended")
	})
}

// Without a limit, updating each block inside the backward pass is the same as
// updating all behind it.
func TestScopeNoneEqualsHugeGlobalNorm(t *testing.T) {
	t.Run(dtypeFloat32, func(t *testing.T) { testScopeNone(t, dtypeFloat32) })
	t.Run(dtypeBFloat16, func(t *testing.T) { testScopeNone(t, dtypeBFloat16) })
}

func testScopeNone(t *testing.T, dtype string) {
	a := trial{config: "{steps: 3, lr: 1e-2, clip: {scope: none}, network: {dtype: " + dtype + "}}"}.run(t)
	b := trial{config: "{steps: 3, lr: 1e-2, clip: {norm: 1e30}, network: {dtype: " + dtype + "}}"}.run(t)
	require.NoError(t, a.Err)
	require.NoError(t, b.Err)
	if d := cmp.Diff(b.last(), a.last(), cmp.AllowUnexported(snapshot{})); d != "" {
		t.Error("the adapters differ")
	}
	for i := range a.steps {
		require.InEpsilon(t, b.steps[i].GradNorm, a.steps[i].GradNorm, 1e-6)
	}
}

func TestScopeBlockLimitsEachBlock(t *testing.T) {
	a := trial{config: "{steps: 2, lr: 1e-2, clip: {norm: 1e-3, scope: block}}"}.run(t)
	b := trial{config: "{steps: 2, lr: 1e-2, clip: {norm: 1e-3}}"}.run(t)
	require.NoError(t, a.Err)
	require.NoError(t, b.Err)
	require.NotEqual(t, a.last().tensors, b.last().tensors)
	require.InEpsilon(t, b.steps[0].GradNorm, a.steps[0].GradNorm, 1e-6, "the norm told is that of all gradients before clipping")
}

func TestNonFiniteStepIsSkipped(t *testing.T) {
	for _, scope := range []string{"global", "block", "none"} {
		t.Run(scope, func(t *testing.T) {
			s := newSource(t)
			s.poison = func(k int) bool { return k == 2 || k == 3 }
			c := trial{config: "{steps: 6, lr: 1e-2, max_nonfinite: 3, ema_config: {use_ema: true}, clip: {scope: " + scope + "}}",
				source: s, saveAt: everyStep}.run(t)
			require.NoError(t, c.Err)
			for i, s := range c.steps {
				require.Equal(t, i == 2 || i == 3, s.Skipped, "step %d", s.Step)
				require.Equal(t, s.Skipped, math.IsNaN(s.Loss), "step %d", s.Step)
			}
			require.Equal(t, c.states[1].tensors, c.states[3].tensors, "a skipped step changed something")
			require.NotEqual(t, c.states[3].tensors, c.states[4].tensors)
			require.Equal(t, map[string]int64{"micro_batches": 6, "updates": 4, "skipped": 2, "nonfinite_row": 0}, c.last().counters)
			require.EqualValues(t, 2, c.states[3].counters["nonfinite_row"])
		})
	}
}

func TestTooManyNonFiniteStepsStopTheRun(t *testing.T) {
	s := newSource(t)
	s.poison = func(k int) bool { return k >= 3 }
	dir := t.TempDir()
	c := trial{dir: dir, config: "{steps: 50, lr: 1e-2, max_nonfinite: 3}", source: s,
		saveAt: func(at pipeline.Moment) bool { return at.Step == 2 || at.Last }}.run(t)
	require.ErrorContains(t, c.Err, "3 steps in a row, up to step 6")
	require.Len(t, c.states, 1)
	kept, _, err := runstate.In(filepath.Join(dir, "output"), "trial").Latest(context.Background())
	require.NoError(t, err)
	require.Equal(t, 2, kept.Step, "the last good checkpoint")
}

func TestResumeNamesAndRefuses(t *testing.T) {
	const before = "{steps: 2, lr: 1e-3, optimizer: adamw8bit, network: {rank: 4, alpha: 2, targets: [img_attn.*]}}"
	for _, c := range []struct {
		name, config, head string
		change             func(*fakeSource)
		refused            string // part of the error, "" where it goes on
	}{
		{name: "more steps and another rate", config: "{steps: 3, lr: 2e-3, optimizer: adamw8bit, network: {rank: 4, alpha: 2, targets: [img_attn.*]}}"},
		{name: "rank by its other name", config: "{steps: 3, lr: 1e-3, optimizer: adamw8bit, network: {linear: 4, linear_alpha: 2, targets: [img_attn.*]}}"},
		{name: "an average from now on", config: "{steps: 3, optimizer: adamw8bit, ema_config: {use_ema: true}, network: {rank: 4, alpha: 2, targets: [img_attn.*]}}"},
		{name: "more samples", config: "{steps: 3, optimizer: adamw8bit, network: {rank: 4, alpha: 2, targets: [img_attn.*]}}",
			change: func(s *fakeSource) { s.samples++ }},
		{name: "type of the adapter", config: "{steps: 3, optimizer: adamw8bit, network: {rank: 4, alpha: 2, targets: [img_attn.*], dtype: bfloat16}}"},
		{name: "rank", config: "{steps: 3, optimizer: adamw8bit, network: {rank: 8, alpha: 2, targets: [img_attn.*]}}", refused: "train.network.rank: 4 -> 8"},
		{name: "targets", config: "{steps: 3, optimizer: adamw8bit, network: {rank: 4, alpha: 2}}", refused: "train.network.targets: [img_attn.*] -> []"},
		{name: "optimiser", config: "{steps: 3, network: {rank: 4, alpha: 2, targets: [img_attn.*]}}", refused: "train.optimizer: adamw8bit -> adamw"},
		{name: "seed", head: "seed: 7\n", config: "{steps: 3, optimizer: adamw8bit, network: {rank: 4, alpha: 2, targets: [img_attn.*]}}", refused: "seed: 42 -> 7"},
		{name: "base", config: "{steps: 3, optimizer: adamw8bit, network: {rank: 4, alpha: 2, targets: [img_attn.*]}}",
			change: func(s *fakeSource) { s.base = "b2" }, refused: "base weights: b1 -> b2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, trial{dir: dir, config: before}.run(t).Err)
			s := newSource(t)
			if c.change != nil {
				c.change(s)
			}
			got := trial{dir: dir, config: c.config, head: c.head, source: s}.run(t)
			if c.refused != "" {
				require.ErrorContains(t, got.Err, c.refused)
				require.ErrorContains(t, got.Err, "--restart")
				require.Empty(t, got.steps)
				return
			}
			require.NoError(t, got.Err)
			require.Len(t, got.steps, 1)
			require.Equal(t, 3, got.steps[0].Step)
		})
	}
}

func TestFinishedRunSaysSo(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, trial{dir: dir, config: "{steps: 2}"}.run(t).Err)
	c := trial{dir: dir, config: "{steps: 2}"}.run(t)
	require.NoError(t, c.Err)
	require.Empty(t, c.steps)
	require.Contains(t, c.Summary()["steps"], "finished before")
}

func TestRunFaults(t *testing.T) {
	for _, c := range []struct{ name, config, want string }{
		{"no such module", "{network: {targets: [img_atn.*]}}", "img_atn"},
		{"bf16 on the CPU", "{dtype: bf16}", "fp32"},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.ErrorContains(t, trial{config: c.config}.run(t).Err, c.want)
		})
	}
}

func TestBatchesThatEndAreAnError(t *testing.T) {
	s := newSource(t)
	o := stagetest.Try(t, Factory(), "{steps: 5}", stagetest.Feed("batches", s.training(0), s.training(1)),
		stagetest.Collect[port.Step]("steps"), stagetest.Collect[port.Validation]("validation"))
	require.ErrorContains(t, o.Err, "the batches ended after step 2 of 5")
	s.close()
}

// A failure on the device, inside step 3: the steps before it are told, nothing
// is lent after it.
func TestNothingIsLentAfterAFailure(t *testing.T) {
	s := newSource(t)
	broken, err := s.dev.NewStream("inputs")
	require.NoError(t, err)
	s.spoil = func(b *port.Batch) {
		if b.Index == 2 {
			broken.Fail(errors.New("the copy failed"))
			b.Ready = broken.Record()
		}
	}
	var lent []int
	c := trial{config: "{steps: 9}", source: s, saveAt: func(at pipeline.Moment) bool {
		lent = append(lent, at.Step)
		return at.Step > 2
	}, cleanup: func() { require.Error(t, broken.Close()) }}.run(t)
	require.ErrorContains(t, c.Err, "the copy failed")
	require.Empty(t, c.states, "moments asked for: %v", lent)
}
