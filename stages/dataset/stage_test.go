package dataset

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"longship/pipeline"
	"longship/pipeline/stagetest"
	"longship/stages/port"
)

func TestConformance(t *testing.T) {
	dir := folder(t, map[string]string{"a.png": picturePNG(32, 32, 1)})
	stagetest.Conformance(t, Factory(), "{folder: "+filepath.ToSlash(dir)+"}")
}

func TestRun(t *testing.T) {
	dir := folder(t, map[string]string{
		"photos/a.png": picturePNG(64, 48, 1), "photos/a.txt": "a square", "photos/b.png": picturePNG(48, 64, 1),
		"photos/c.png": picturePNG(64, 48, 1), "photos/d.png": picturePNG(48, 48, 3), "photos/broken.jpg": "no",
	})
	got := stagetest.Collect[port.Sample]("samples")
	outcome := stagetest.Run(t, Factory(), "{folder: photos, resolution: [32, 512], validation: 1, caption_ext: txt}", stagetest.Dir(dir), got)
	require.Len(t, got.Values, 8)
	require.Equal(t, []string{"dataset/a.png@32", "dataset/a.png@512", "dataset/b.png@32"}, ids(got.Values)[:3])
	require.Equal(t, "a square", got.Values[0].Caption)
	require.Equal(t, []string{filepath.ToSlash(filepath.Join(dir, "photos", "broken.jpg"))}, outcome.SetAside())
	summary := outcome.Summary()
	require.EqualValues(t, 5, summary["images found"])
	require.EqualValues(t, 3, summary["images used"])
	require.EqualValues(t, 1, summary["images for validation"])
	require.EqualValues(t, 1, summary["set aside"])
	require.EqualValues(t, 3, summary["images without a caption"])
	require.Equal(t, "32x32: 4, 48x48: 1, 48x64: 1, 64x48: 2", summary["buckets"])
	require.Contains(t, summary["duplicates"], "a.png = c.png")
}

func TestRunWithoutImages(t *testing.T) {
	dir := folder(t, map[string]string{"photos/a.jpg": "no"})
	outcome := stagetest.Try(t, Factory(), "{folder: photos}", stagetest.Dir(dir))
	require.ErrorContains(t, outcome.Err, "no usable image in "+filepath.ToSlash(filepath.Join(dir, "photos")))
	require.Len(t, outcome.SetAside(), 1)
}

// Images held for validation are never trained on, so theirs is no folder that
// the others are in; reference images are no images to train on either.
func TestFolderInsideAnother(t *testing.T) {
	dir := folder(t, map[string]string{"all/photos/a.png": picturePNG(32, 32, 1), "all/b.png": picturePNG(32, 32, 2)})
	for config, key := range map[string]string{
		"{folder: all/photos, validation: all/photos}":     "validation",
		"{folder: all/photos, validation: all}":            "validation",
		"{folder: all/photos, control_path: [all/../all]}": "control_path",
	} {
		outcome := stagetest.Try(t, Factory(), config, stagetest.Dir(dir))
		require.ErrorContains(t, outcome.Err, key+": ", config)
		require.ErrorContains(t, outcome.Err, "holds the images to train on", config)
	}
	got := stagetest.Collect[port.Sample]("samples")
	stagetest.Run(t, Factory(), "{folder: all, validation: all/photos}", stagetest.Dir(dir), got)
	require.Equal(t, []string{"dataset/b.png@512", "dataset/validation:a.png@512"}, ids(got.Values))
}

// TestStopSoftly: a stop before the start is no failure.
func TestStopSoftly(t *testing.T) {
	dir := folder(t, map[string]string{"a.png": picturePNG(32, 32, 1)})
	signals := make(chan os.Signal, 1)
	signals <- os.Interrupt
	outcome := stagetest.Try(t, Factory(), "{folder: .}", stagetest.Dir(dir), stagetest.Signals(signals), stagetest.Collect[port.Sample]("samples"))
	require.Equal(t, pipeline.ErrInterrupted, outcome.Err)
}

func TestOneResolutionOrMany(t *testing.T) {
	for yaml, want := range map[string]int{"256": 1, "[256, 512]": 2} {
		dir := folder(t, map[string]string{"a.png": picturePNG(32, 32, 1)})
		got := stagetest.Collect[port.Sample]("samples")
		stagetest.Run(t, Factory(), "{folder: ., resolution: "+yaml+"}", stagetest.Dir(dir), got)
		require.Len(t, got.Values, want)
	}
}
