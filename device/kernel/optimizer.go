package kernel

// The attributes of optimizers' kernels differ from call to call. So that a step
// over hundreds of tensors makes no garbage, a call carries a pointer to a
// structure that is used again.

// Adam is a step of Adam, AdamW or AMSGrad: the t-th has Corrected = Rate/(1 −
// Beta1ᵗ) and Root = √(1 − Beta2ᵗ).
type Adam struct {
	Rate, Beta1, Beta2, Epsilon, Decay float64
	Corrected, Root                    float64
	Decoupled, AMSGrad                 bool
}

// SGD is a step of stochastic gradient descent; First where the momentum buffers
// have no content yet.
type SGD struct {
	Rate, Momentum, Dampening, Decay float64
	Nesterov, First                  bool
}

// Matrices are what a piece of Adafactor works on: Batch matrices, or one vector
// where Batch is 0. Epsilon is the least mean that is divided by.
type Matrices struct {
	Batch, Rows, Columns int
	Epsilon              float64
}

// Adafactor is a whole step of one parameter: Weight is what the squares of the
// gradient enter the means with, Rho the rate, Epsilon2 the least size of the
// parameter, Threshold the largest of the update, and Shrink what the parameter
// is multiplied by.
type Adafactor struct {
	Matrices
	Weight, Rho, Epsilon2, Threshold, Shrink float64
}
