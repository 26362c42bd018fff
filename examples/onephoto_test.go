package examples_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// An adapter trained on one photo for 200 steps knows that photo: its loss ends
// at least 10 % better on it than on the others, measured at the same noise
// levels, and has fallen by more. The run is of one adapter: its last two steps
// measure the others and the photo again.
func TestOnePhoto(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	photos, err := filepath.Glob("quickstart/photos/*.jpg")
	require.NoError(t, err)
	for _, path := range photos {
		name := strings.TrimSuffix(filepath.Base(path), ".jpg")
		folders := []string{"others"}
		if name == "coffee" {
			folders = []string{"train", "same"}
		}
		for _, folder := range folders {
			p.write(folder+"/"+name+".txt", name) // short captions make short prompts
			copyAll(t, path, p.path(folder+"/"+name+".jpg"))
		}
	}
	// measured runs to a step and returns the losses on a folder.
	measured := func(run, folder, steps string) []event {
		args := []string{"run", "pipeline.yaml", "--json"}
		for _, s := range []string{
			"name=" + run, "stages.train.steps=" + steps, "stages.dataset.folder=train", "stages.dataset.validation=" + folder,
			"stages.dataset.resolution=[64]", "stages.textembed.max_length=112", "stages.train.validate_every=0", "stages.checkpoint.every=0",
		} {
			args = append(args, "--set", s)
		}
		o := p.done(args...)
		require.NotContains(t, o.stderr, "too long")
		return o.events(t, "validation")
	}
	before := measured("untrained", "others", "1")[0].number("loss")
	own := measured("one", "same", "200")
	others := measured("one", "others", "201")
	again := measured("one", "same", "202")

	first, last := own[0].number("loss"), own[1].number("loss")
	rest := others[0].number("loss")
	t.Logf("on the photo %.4f to %.4f (zero %.4f); on the others %.4f to %.4f (zero %.4f); on the photo two steps later %.4f",
		first, last, own[1].number("zero"), before, rest, others[0].number("zero"), again[0].number("loss"))
	require.Len(t, others, 1)
	require.EqualValues(t, 201, others[0].number("step"))
	require.LessOrEqual(t, last, 0.9*rest)
	require.LessOrEqual(t, again[0].number("loss"), 0.9*rest)
	require.LessOrEqual(t, last/first, 0.9*rest/before)
	require.Less(t, last, own[1].number("zero"))
}
