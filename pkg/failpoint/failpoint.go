// Package failpoint lets a test end the process at a named place, as a power cut would.
//
// Code calls [Hit] where a crash would be interesting, such as between journaling an intent and issuing it. In the
// shipped binary Hit does nothing and costs nothing; built with the tag `failpoint` it reads its orders from the
// environment:
//
//	EVALFLEET_FAILPOINT=agentorch/after-intent=3,modelgw/after-claim
//
// ends the process with SIGKILL when agentorch/after-intent is passed for the third time, or modelgw/after-claim for
// the first. Names are those of the places, as `service/place`; a name that no code passes is never hit.
// EVALFLEET_FAILPOINT_ONCE may name a file: where it exists no place is hit, and it is made just before the process is
// killed, so that the restarted process goes on undisturbed with the same environment.
package failpoint
