// Package failpoint lets a test end the process at a named point, as a power cut would.
//
// Code calls [Hit] at points where a crash would be interesting, such as between journaling an intent and issuing it.
// In the shipped binary Hit does nothing and costs nothing; built with the tag `failpoint` it reads its orders from the
// environment:
//
//	EVALFLEET_FAILPOINT=agentorch/after-intent=3,modelgw/after-claim
//
// ends the process with SIGKILL when agentorch/after-intent is reached for the third time, or modelgw/after-claim for
// the first. Names are those of the points, as `service/place`; a name that is not in the code is never hit.
// EVALFLEET_FAILPOINT_ONCE may name a file: if it exists no point is hit, and it is created just before the process is
// killed, so that the restarted process runs undisturbed with the same environment.
package failpoint
