package checkpoint_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"longship/internal/runstate"
	"longship/pipeline"
	"longship/stages/checkpoint"
	"longship/stages/port"
)

// lender lends the states of a run of n steps.
type lender struct {
	n   int
	out *pipeline.Lend[*port.State]
}

func (l *lender) Ports() []pipeline.Port { return []pipeline.Port{l.out} }

func (l *lender) Run(ctx context.Context) error {
	for _, loan := range loans(l.n, false) {
		if err := l.out.Lend(ctx, loan.At, loan.Value); err != nil {
			return err
		}
	}
	return nil
}

// Two checkpoint stages write files of their own, at steps of their own, of one
// checkpoint where both are due.
func TestTwoStages(t *testing.T) {
	lend := pipeline.Factory{
		Type: "lend", Default: func() any { return &struct{}{} },
		New: func(pipeline.Settings, any) (pipeline.Stage, error) {
			return &lender{7, pipeline.NewLend[*port.State]("state")}, nil
		},
	}
	often, seldom := checkpoint.Default(), checkpoint.Default()
	often.Every, often.Keep = 1, 2
	seldom.Every, seldom.Keep, seldom.Layout = 3, 0, "diffusers"
	env := &pipeline.Env{Name: "cat", Dir: t.TempDir()}
	p, err := pipeline.Compose(env, nil, pipeline.Part{Factory: lend},
		pipeline.Part{Factory: checkpoint.Factory(), Config: often},
		pipeline.Part{Factory: checkpoint.Factory(), ID: "seldom", Config: seldom})
	require.NoError(t, err)
	_, err = p.Check(t.Context())
	require.NoError(t, err)
	var events []string
	res, err := p.Run(t.Context(), pipeline.RunOptions{OnEvent: func(ev pipeline.Event) {
		if path, ok := ev.Data["file"].(string); ok {
			events = append(events, ev.Stage+" "+filepath.Base(path))
		}
	}})
	require.NoError(t, err)
	require.Len(t, res.Summary, 2)
	require.Contains(t, events, "checkpoint cat_000000003.safetensors")
	require.Contains(t, events, "seldom cat-seldom_000000003.safetensors")

	folder := runstate.In(env.Output, env.Name)
	entries, err := os.ReadDir(folder.Dir)
	require.NoError(t, err)
	var files []string
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".safetensors") {
			files = append(files, e.Name())
		}
	}
	require.ElementsMatch(t, []string{"cat_000000005.safetensors", "cat_000000006.safetensors", "cat.safetensors",
		"cat-seldom_000000003.safetensors", "cat-seldom_000000006.safetensors", "cat-seldom.safetensors"}, files)
	c, ignored, err := folder.Latest(t.Context())
	require.NoError(t, err)
	require.Empty(t, ignored)
	require.Equal(t, 7, c.Step)
}
