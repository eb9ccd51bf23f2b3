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
		id, err := clusterOf(metric, key, samples[i])
		if err != nil {
			return nil, err
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

// clusterOf returns the id of a sample's cluster.
func clusterOf(metric, key string, sample Sample) (string, error) {
	value, _ := sample.metadata(key)
	id, err := clusterID(value)
	if err != nil {
		return "", fmt.Errorf("metric %s: sample %s: metadata %q %w: every sample needs one to be clustered; %s", metric, sample.ID, key, err, sample.known(key))
	}
	return id, nil
}

// clustered is the check of a metric with the parameter `cluster`.
func clustered(metric string) func(json.RawMessage) (Check, error) {
	return func(given json.RawMessage) (Check, error) {
		var p struct {
			Cluster *string `json:"cluster"`
		}
		if err := unmarshal(given, &p); err != nil || p.Cluster == nil {
			return nil, err
		}
		return func(sample Sample) error {
			_, err := clusterOf(metric, *p.Cluster, sample)
			return err
		}, nil
	}
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
