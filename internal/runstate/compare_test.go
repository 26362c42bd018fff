package runstate

import (
	"testing"

	"github.com/stretchr/testify/require"

	"longship/stages/port"
)

func TestCompare(t *testing.T) {
	c := &Checkpoint{Step: 40, Settings: []port.Setting{
		{Name: "train.lr", Value: "0.0001"}, {Name: "train.steps", Value: "100"},
		{Name: "train.network.rank", Value: "16", Fixed: true}, {Name: "train.old", Value: "x"},
	}}
	now := func(lr, rank string) []port.Setting {
		return []port.Setting{{Name: "train.lr", Value: lr}, {Name: "train.steps", Value: "100"},
			{Name: "train.network.rank", Value: rank, Fixed: true}, {Name: "train.new", Value: "y"}}
	}
	applied, err := c.Compare("cat", now("0.001", "16"))
	require.NoError(t, err)
	require.Equal(t, []Change{{"train.lr", "0.0001", "0.001"}, {"train.new", "", "y"}, {"train.old", "x", ""}}, applied)
	require.Equal(t, "train.new: (none) -> y", applied[1].String())

	_, err = c.Compare("cat", now("0.001", "32"))
	var refused *RefusedError
	require.ErrorAs(t, err, &refused)
	require.Equal(t, []Change{{"train.network.rank", "16", "32"}}, refused.Changes)
	require.EqualError(t, err, "run cat cannot go on from step 40, since this has changed: train.network.rank: 16 -> 32; set it back, or start afresh with --restart (the old output is kept) or under another name")
}

func TestCompareDataset(t *testing.T) {
	c := &Checkpoint{Dataset: []string{"a", "b", "c×2"}}
	added, gone := c.CompareDataset([]string{"b", "c×3", "d"})
	require.Equal(t, 2, added)
	require.Equal(t, 2, gone)
	added, gone = c.CompareDataset(c.Dataset)
	require.Zero(t, added)
	require.Zero(t, gone)
}
