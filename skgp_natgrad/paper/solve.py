"""SOLVE-GP: the orthogonal part has a covariance too.

Shi, Titsias and Mnih (2020), "Sparse Orthogonal Variational Inference for Gaussian Processes". The process is split
into two parts, f = f_Z + f_perp: f_Z is determined by f(Z), and f_perp vanishes at Z and has the covariance

    c(x, x') = k_xx' - k_xz Kzz^-1 k_zx'

Both have inducing variables, f_Z at Z and f_perp at a second set of points O, each whitened by the
Cholesky factor of its own covariance, and each with a Gaussian q of its own (the paper's section 3.2):

    f(Z)      = L v_z,     L L^T     = Kzz,       q(v_z) = N(m_z, S_z)
    f_perp(O) = L_o v_o,   L_o L_o^T = c(O, O),   q(v_o) = N(m_o, S_o)

    A_z(x)  = L^-1 k_zx,   A_o(x) = L_o^-1 c(O, x)
    mean(x) = A_z^T m_z + A_o^T m_o
    var(x)  = k_xx - |A_z|^2 - |A_o|^2 + A_z^T S_z A_z + A_o^T S_o A_o
    KL      = KL(N(m_z, S_z) || N(0, I)) + KL(N(m_o, S_o) || N(0, I))

The joint covariance of the two sets, U, has the Cholesky factor

    L_u = [[L, 0], [(L^-1 Kzo)^T, L_o]],   so that   L_u^-1 k_ux = (A_z, A_o)

and SOLVE-GP is the coupled basis on U with q(v) = N((m_z, m_o), diag(S_z, S_o)): one q, whose covariance
is zero between the two sets. `Points.of_q` returns the points of q, `Points.sizes` the sizes of its blocks.

Natural gradients. In the family of such q the expectation parameters are E[v] and only the diagonal
blocks of E[v v^T]. Let E be the expected log-likelihood. Its gradient in E[v], with these blocks held,
is dE/dm - 2 (dE/dS) m, as for any q, and the natural gradient points to

    precision = I - 2 B,    nat1 = dE/dm - 2 B m,    B = the diagonal blocks of dE/dS

which is `natural_gradient.direction` with zeros where S has them: the precision stays block diagonal.
E does not depend on the other blocks of S, so `WhitenedRows` returns its gradient with these zeros.

One thing differs from the coupled basis. For a Gaussian likelihood the best precision is one step of
size one away: the diagonal blocks of P = I - 2 dE/dS, the best precision of the coupled basis on U. The
best mean is that of the coupled basis on U, which depends on the whole of P. A step goes from m to
m + gamma Q^-1 dELBO/dm, where Q is the new precision: at gamma = 1 this is Jacobi's method, whose error
falls by the largest canonical correlation of v_z and v_o under N(0, P^-1) per step. No step of gamma up
to one lowers the bound, since Q >= gamma diag(P) and 2 diag(P) >= P for two blocks. L-BFGS solves for
the mean: see `lbfgs.optimal_q`.

Cost per row, for M and O points: A takes (M + O)^2, as on U; S A, M^2 + O^2 in place of (M + O)^2;
and its gradients, (M + O)^2, since L_u couples the sets. A step on q takes M^3 + O^3. L_u and its
gradient take (M + O)^3, and a prediction (M + O)^2, as on U.
"""

from __future__ import annotations

from .hybrid import HYBRID

# There are no mean-only points: the hybrid basis adds its own to the points on which q(v) rests, which are both sets.
SOLVE = HYBRID._replace(second_part=True)
