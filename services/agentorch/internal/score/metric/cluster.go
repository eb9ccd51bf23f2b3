package metric

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
)

// partition groups the values of samples by a key of their metadata, in the order in which clusters appear.
func partition(metric, key string, samples []Sample) ([][]float64, error) {
	var clusters [][]float64
	index := map[string]int{}
	for i, f := range floats(samples) {
		value, _ := samples[i].metadata(key)
		id, err := clusterID(value)
		if err != nil {
			return nil, fmt.Errorf("metric %s: sample %s: metadata %q %w: every sample needs one to be clustered", metric, samples[i].ID, key, err)
		}
		at, ok := index[id]
		if !ok {
			at = len(clusters)
			index[id] = at
			clusters = append(clusters, nil)
		}
		clusters[at] = append(clusters[at], f)
	}
	return clusters, nil
}

// clusterID returns one text for values that name the same cluster: numbers by value, with bools as 1 and 0, and texts.
func clusterID(value any) (string, error) {
	switch v := value.(type) {
	case string:
		return "text " + v, nil
	case json.Number:
		f, err := v.Float64()
		return "number " + strconv.FormatFloat(f, 'g', -1, 64), err
	case bool:
		if v {
			return "number 1", nil
		}
		return "number 0", nil
	case nil:
		return "", fmt.Errorf("is missing")
	}
	return "", fmt.Errorf("is a list or an object, not a cluster's name")
}

// clusteredError is the standard error of the mean over clusters, with the correction c/(c-1) for few of them (Miller
// 2024, arXiv:2411.00640, appendix A, without the correction).
func clusteredError(clusters [][]float64) float64 {
	c := float64(len(clusters))
	if c < 2 {
		return 0
	}
	var all []float64
	for _, cluster := range clusters {
		all = append(all, cluster...)
	}
	m, sum := mean(all), 0.0
	for _, cluster := range clusters {
		deviation := 0.0
		for _, f := range cluster {
			deviation += f - m
		}
		sum += deviation * deviation
	}
	return math.Sqrt(sum*c/(c-1)) / float64(len(all))
}

// singletons makes every value a cluster of its own.
func singletons(numbers []float64) [][]float64 {
	clusters := make([][]float64, len(numbers))
	for i := range numbers {
		clusters[i] = numbers[i : i+1]
	}
	return clusters
}
