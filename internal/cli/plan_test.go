package cli_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"longship/internal/bench"
	"longship/internal/cli"
	"longship/stages"
)

// A file's own settings are what is planned for.
func TestPlanOfAFile(t *testing.T) {
	var out, errs bytes.Buffer
	code := cli.Run([]string{"plan", "--gpu", "rtx4090", "--json", "--vram", "3GiB", "../../examples/quickstart/pipeline.yaml"}, &out, &errs, stages.Builtin()...)
	require.Equal(t, cli.ExitDone, code, errs.String())
	var p struct {
		bench.Case
		Forecast *bench.Forecast `json:"forecast"`
	}
	require.NoError(t, json.Unmarshal(out.Bytes(), &p))
	require.Equal(t, bench.Case{Pixels: 128, Rank: 32, Offload: "0.71", Cap: "3GiB"}, p.Case)
	require.Positive(t, p.Forecast.Streamed)
	require.Positive(t, p.Forecast.Profile.Seconds)

	out.Reset()
	code = cli.Run([]string{"plan", "--gpu", "rtx4090", "../../examples/latent-cache/pipeline.yaml"}, &out, &errs, stages.Builtin()...)
	require.NotEqual(t, cli.ExitDone, code)
	require.Contains(t, errs.String(), "no train stage")
}
