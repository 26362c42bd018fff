package flow

import "sync"

// weightStride is the distance in indices between two knots; the last knot is
// at the last index.
const weightStride = 20

// weightKnots are the loss weights of ai-toolkit's "weighted" timesteps at
// every weightStride-th index and at the last: what one pass of a trained model
// of the family loses on average at each noise level.
var weightKnots = [...]float64{
	.9057, 1.1761, 1.3295, 1.4132, 1.4760, 1.5068, 1.5187, 1.5163, 1.4980, 1.4733,
	1.4413, 1.4082, 1.3736, 1.3375, 1.3005, 1.2636, 1.2269, 1.1899, 1.1539, 1.1172,
	1.0826, 1.0487, 1.0160, .9846, .9543, .9254, .8980, .8718, .8476, .8254,
	.8049, .7864, .7694, .7547, .7418, .7312, .7228, .7171, .7141, .7138,
	.7161, .7203, .7258, .7314, .7311, .7162, .6791, .6189, .5446, .4755,
	.4473,
}

// Weight returns the loss weight of timestep index i under Weighted: linear
// between the knots, scaled so that the 1000 weights have mean 1.
func Weight(i int) float64 { return weights()[i] }

var weights = sync.OnceValue(func() *[Steps]float64 {
	var w [Steps]float64
	sum := 0.0
	for i := range w {
		k := i / weightStride
		lo, hi := k*weightStride, min((k+1)*weightStride, Steps-1)
		f := float64(i-lo) / float64(hi-lo)
		w[i] = weightKnots[k] + f*(weightKnots[k+1]-weightKnots[k])
		sum += w[i]
	}
	for i := range w {
		w[i] *= Steps / sum
	}
	return &w
})
