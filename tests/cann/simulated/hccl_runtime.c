// Collectives of HCCL: not simulated yet.
typedef int no_body_yet;
