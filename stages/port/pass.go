package port

import (
	"context"

	"longship/pipeline"
)

// Collect takes all samples of an input, none if the user asked the run to stop.
// A sample that cannot be read is set aside.
func Collect(ctx context.Context, set pipeline.Settings, in *pipeline.In[Sample]) ([]Sample, error) {
	var samples []Sample
	err := pipeline.Each(ctx, set, in, func(_ context.Context, s Sample) error {
		samples = append(samples, s)
		return nil
	})
	if set.Env.Stopped() {
		return nil, err
	}
	return samples, err
}

// SendAll sends samples in their order. The error is pipeline.ErrDone once
// nobody wants more, which ends a stage without failing it.
func SendAll(ctx context.Context, out *pipeline.Out[Sample], samples []Sample) error {
	for _, s := range samples {
		if err := out.Send(ctx, s); err != nil {
			return err
		}
	}
	return nil
}
