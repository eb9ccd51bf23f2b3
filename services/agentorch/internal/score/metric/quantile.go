package metric

import "math"

// normalQuantile is the inverse of the standard normal distribution function.
func normalQuantile(p float64) float64 { return math.Sqrt2 * math.Erfinv(2*p-1) }

// studentQuantile is the inverse of Student's t distribution function with df degrees of freedom, for p of at least
// 1/2.
func studentQuantile(p, df float64) float64 {
	if p >= 1 {
		p = math.Nextafter(1, 0)
	}
	// The distribution function is monotonous: double an upper bound until it is one, then halve the interval down to
	// the last bit.
	low, high := 0.0, 1.0
	for studentTail(high, df) > 1-p {
		low, high = high, 2*high
	}
	for {
		middle := low + (high-low)/2
		if middle == low || middle == high {
			return middle
		}
		if studentTail(middle, df) > 1-p {
			low = middle
		} else {
			high = middle
		}
	}
}

// studentTail is the probability that Student's t exceeds a t of at least 0 (Abramowitz and Stegun 26.7.1).
func studentTail(t, df float64) float64 { return incompleteBeta(df/2, 0.5, df/(df+t*t)) / 2 }

// incompleteBeta is the regularized incomplete beta function I_x(a, b) for x from 0 to 1 (DLMF 8.17).
func incompleteBeta(a, b, x float64) float64 {
	if x <= 0 || x >= 1 {
		return x
	}
	if x > (a+1)/(a+b+2) {
		// The fraction converges fast on the other side: I_x(a,b) = 1 - I_{1-x}(b,a).
		return 1 - incompleteBeta(b, a, 1-x)
	}
	lgammaA, _ := math.Lgamma(a)
	lgammaB, _ := math.Lgamma(b)
	lgammaAB, _ := math.Lgamma(a + b)
	front := math.Exp(lgammaAB-lgammaA-lgammaB+a*math.Log(x)+b*math.Log1p(-x)) / a
	return front / betaFraction(a, b, x)
}

// betaFraction evaluates 1 + d1/(1 + d2/(1 + …)), the continued fraction DLMF 8.17.22, by its convergents A/B, which
// are scaled so that they stay small.
func betaFraction(a, b, x float64) float64 {
	const steps, precision = 500, 1e-16
	before, beforeDenominator := 1.0, 0.0
	last, lastDenominator := 1.0, 1.0
	value := 1.0
	for i := 1; i <= steps; i++ {
		m := float64(i / 2)
		d := m * (b - m) * x / ((a + 2*m - 1) * (a + 2*m))
		if i%2 == 1 {
			d = -(a + m) * (a + b + m) * x / ((a + 2*m) * (a + 2*m + 1))
		}
		next, nextDenominator := last+d*before, lastDenominator+d*beforeDenominator
		before, beforeDenominator = last/nextDenominator, lastDenominator/nextDenominator
		last, lastDenominator = next/nextDenominator, 1
		change := last - value
		value = last
		if math.Abs(change) <= precision*math.Abs(value) {
			break
		}
	}
	return value
}
